# syntax=docker/dockerfile:1
#
#   docker build --target cpu -t twinlens:cpu .
#   docker build --target cpu --build-arg EXTRAS=cpu,openvino,heic -t twinlens:openvino .
#   docker build --target gpu -t twinlens:gpu .
#   docker run -p 50051:50051 -v ./models/starter/1:/models/starter:ro -v twinlens-data:/data twinlens:cpu --bundle /models/starter
#
# The gpu image wants `--gpus all` and says so if there is no device, instead of serving slowly (--provider auto does that).
# A folder mounted at /data must belong to user 10001. The health check asks port 50051: map another one outside.
#
# The server only: no torch. Build the bundle outside (`twinlens starter`, `twinlens export`) and mount it.
# Nothing is written outside /data and /tmp, so a read-only root file system works: --read-only --tmpfs /tmp.
# The port is open to whoever reaches it until there are tokens and a certificate: docs/security.md.

ARG PYTHON_VERSION=3.12
# Of the cpu image: cpu, or cpu,openvino and whatever else README.md lists (heic, s3, gcs, fetch, otel).
ARG EXTRAS=cpu

FROM python:${PYTHON_VERSION}-slim AS wheel
WORKDIR /src
RUN pip install --no-cache-dir build
COPY . .
RUN python -m build --wheel --outdir /dist && cp constraints.txt /dist/

FROM python:${PYTHON_VERSION}-slim AS base
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PATH=/opt/twinlens/bin:$PATH
# Python's image has no compiled modules, and a read-only root file system keeps none: every start would compile them
# anew, each health check's too.
RUN groupadd --gid 10001 twinlens \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin twinlens \
    && install -d -o twinlens -g twinlens /data \
    && python -m compileall -q -x site-packages "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && python -m venv /opt/twinlens
WORKDIR /data
VOLUME /data
EXPOSE 50051
# SIGTERM drains: health goes red, running calls finish within the grace.
STOPSIGNAL SIGTERM
# A check starts a process, which takes a third of a second of a CPU: one in 30 s is a hundredth of it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["twinlens", "health", "--server", "127.0.0.1:50051"]
ENTRYPOINT ["twinlens", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "50051"]

FROM base AS gpu
RUN --mount=from=wheel,source=/dist,target=/dist \
    pip install --no-cache-dir -c /dist/constraints.txt "$(echo /dist/twinlens-*.whl)[gpu]"
ENV TWINLENS_PROVIDER=cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001

# The last stage is the default target.
FROM base AS cpu
ARG EXTRAS
RUN --mount=from=wheel,source=/dist,target=/dist \
    pip install --no-cache-dir -c /dist/constraints.txt "$(echo /dist/twinlens-*.whl)[${EXTRAS}]"
# By number, so that an orchestrator can tell that it is not root.
USER 10001
