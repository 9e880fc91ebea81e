"""Judges any A2A host in the world, as a client of it: `roost conform URL`."""
