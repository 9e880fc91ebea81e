"""HTTP/1.1 on uvicorn: sockets, TLS, connection limits and worker processes."""
