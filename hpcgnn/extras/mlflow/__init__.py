"""`hpcgnn report --mlflow STORE`: runs in a tracking store of MLflow, after their jobs."""
