"""Benchmarks: what saving, loading and the control plane cost, beside a peer where there is one."""
