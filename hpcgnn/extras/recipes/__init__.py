"""Recipes of leaderboards, for who trains for accuracy (docs/recipes.md): propagated features and the model `sign`,
labels as inputs, Correct & Smooth, and label propagation.
"""
