# HBase, for which there is no official image: the same server, from the same artefacts, as `tailorbird stack up` starts.
FROM python:3.11-slim-bookworm

RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless maven \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/tailorbird
COPY pyproject.toml build_backend.py README.md LICENSE ./
COPY locks locks
RUN pip install --no-cache-dir --require-hashes --requirement locks/build.txt \
    && pip install --no-cache-dir --no-build-isolation --require-hashes --requirement locks/run.txt
COPY src src
RUN pip install --no-cache-dir --no-build-isolation --no-deps .

ENV TAILORBIRD_HOME=/var/lib/tailorbird TAILORBIRD_CACHE=/opt/tailorbird/cache
RUN tailorbird stack fetch hbase && rm -rf /root/.m2

CMD ["tailorbird", "stack", "run", "hbase"]
