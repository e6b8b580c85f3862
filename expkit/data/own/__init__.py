"""What users bring that has an order of its own: streams, loaders, samplers, batch samplers."""
