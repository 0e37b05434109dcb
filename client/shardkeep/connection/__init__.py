"""How the client talks to the service and to object stores: addresses, retries, error mapping, chunk transfer."""
