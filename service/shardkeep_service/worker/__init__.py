"""Background work inside the service process."""
