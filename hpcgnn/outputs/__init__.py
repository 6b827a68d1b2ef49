"""Result files with a row per node: predictions, embeddings, propagated features."""
