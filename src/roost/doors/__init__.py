"""The ways into the host. A door parses its protocol, calls the engine, and writes the response in its own form."""
