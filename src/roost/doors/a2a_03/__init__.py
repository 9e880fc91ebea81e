"""A2A 0.3, for clients that say no version or 0.3: every conversion by a2a-sdk's compat layer, on our engine.

door.py     what is 0.3's and what is not; its paths
asked.py    bodies and protobuf messages as requests of 1.0, or an error that names the field
beside.py   what takes long, beside the loop
handler.py  the compat layer on our adapter, and what has to be mended in it
jsonrpc.py, rest.py, grpc.py   the three bindings
streams.py  server-sent events of 0.3
cards.py    the card of 0.3
errors.py   how REST and gRPC say errors
"""
