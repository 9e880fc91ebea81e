"""How the world comes in. A door parses bytes, calls one Engine method and writes bytes."""
