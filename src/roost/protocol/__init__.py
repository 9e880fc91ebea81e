"""A2A 1.0 as values: types, errors, states, fold and canonical forms. It has no I/O, no clock and no secrets."""
