# All of Drover's services: the command says which one runs (docs/compose.md).
#
#   docker build -t drover/drover .
#   docker run … drover/drover python -m services.session.main
#
# Where no registry can be reached, a BASE_IMAGE of yours has Python 3.11 and the packages of
# deploy/images/requirements.lock already: then nothing is fetched.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 HOME=/data DROVER_DATA_DIR=/data

COPY deploy/images/requirements.lock deploy/images/install.py /build/
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --prefer-binary \
      --root-user-action=ignore --disable-pip-version-check --require-hashes -r /build/requirements.lock \
 # Owners of what volumes are mounted on: a new volume takes them over.
 && mkdir -p /data /run/drover/tls /run/drover/secret /run/drover/database /run/drover/keys \
 && for place in ca gateway session brain hands vault_proxy registry operator secret database keys postgres; \
    do mkdir -p "/prepared/$place"; done \
 && chmod 0700 /data /prepared/* && chmod 0755 /prepared/postgres \
 && chown -R 10001:10001 /data /prepared /run/drover \
 && mkdir /run/drover/engine \
 && mkdir -p /usr/local/bin && { command -v python >/dev/null || ln -s "$(command -v python3)" /usr/local/bin/python; } \
 && echo 'drover:x:10001:10001::/data:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'drover:x:10001:' >> /etc/group

COPY . /build/drover/
RUN python3 /build/install.py /build/drover && rm -rf /build

USER 10001:10001
WORKDIR /data
EXPOSE 7000 8080
# The process itself is asked, at DROVER_LISTEN. Commands end before they are.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD ["python", "-m", "cli.probe"]
ENTRYPOINT []
CMD ["drover", "--help"]
