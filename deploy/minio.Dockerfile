# MinIO as compose runs it: not as root, with a directory that this user owns (a new volume takes it over).
# The community server gets no updates any more; the tag is the last one published.
FROM quay.io/minio/minio:RELEASE.2025-09-07T16-13-09Z@sha256:14cea493d9a34af32f524e538b8346cf79f3321eff8e708c1e2960462bd8936e
RUN mkdir -m 0700 /store && chown 10001:10001 /store
USER 10001:10001
