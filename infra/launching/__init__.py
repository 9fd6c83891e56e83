"""An arm's recipe, its models, its launch and the proof that it is ready."""
