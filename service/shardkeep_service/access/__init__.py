"""Access: tokens, scopes and the default-deny rule."""
