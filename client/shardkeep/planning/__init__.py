"""Pure decisions of saving and loading: what is packed with what, what is reused, what is read together. No I/O."""
