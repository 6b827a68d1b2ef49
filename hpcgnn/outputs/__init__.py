"""Files of results by node: predictions, embeddings, propagated features."""
