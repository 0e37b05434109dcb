"""The dashboard: static files built from `service/dashboard`, served under /ui. They speak the public REST API only."""
