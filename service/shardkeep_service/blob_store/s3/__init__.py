"""The blob store in an S3 bucket, its probe, and the signing of requests that clients send there themselves."""
