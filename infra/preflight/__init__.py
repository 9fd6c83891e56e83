"""What would go wrong with a target and a draft, read from their files before any weights are loaded."""
