"""A2A 1.0 as values: types, errors, states, fold. No I/O, no clock, no secrets."""
