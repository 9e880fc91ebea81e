"""Where journals are kept. Each store is behind engine/ports and passes one conformance suite."""
