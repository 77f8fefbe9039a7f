"""The bridge to the user's browser: what is said (wire, without I/O) and the sockets (server)."""
