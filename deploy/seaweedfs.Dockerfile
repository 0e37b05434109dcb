# SeaweedFS as compose runs it: not as root, with a directory that this user owns (a new volume takes it over).
# 4.16 and older lose races of conditional puts.
FROM chrislusf/seaweedfs:4.48@sha256:4e61d15fd35994cb1e43e1e553dff106794841fd9a99ade2fc8c8bfce4d7872d
RUN mkdir -m 0700 /store && chown 10001:10001 /store
USER 10001:10001
ENTRYPOINT ["weed"]
