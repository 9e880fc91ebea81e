"""The A2A extensions that Roost supports."""
