"""The stores: SQLite, PostgreSQL and memory. Each implements engine/ports and passes one conformance suite."""
