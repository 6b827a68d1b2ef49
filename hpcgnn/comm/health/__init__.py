"""Signs of life between ranks, and the watchdog that reads them."""
