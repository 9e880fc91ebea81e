"""Tests whether an A2A host conforms to the specification, as a client of it: `roost conform URL`."""
