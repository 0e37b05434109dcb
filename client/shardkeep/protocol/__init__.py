"""What client and service agree on: identifiers, messages, routes, error codes and versions. No I/O, no torch."""
