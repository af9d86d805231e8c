# The node in an image without a shell, as a user without rights.
#
#   docker build -t niwaki .
#   docker run -v niwaki:/data -p 30303:30303 -p 30303:30303/udp niwaki --network sepolia
FROM rust:1.95-bookworm AS build
WORKDIR /niwaki
COPY . .
# The commit that `niwaki --version` shows comes from .git; the build's files stay in the cache of the builder.
RUN --mount=type=cache,target=/target --mount=type=cache,target=/usr/local/cargo/registry \
    scripts/setup.sh && CARGO_TARGET_DIR=/target cargo build --release --locked -p niwaki-node && \
    strip --strip-debug -o /usr/bin/niwaki /target/release/niwaki && mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/bin/niwaki /usr/bin/niwaki
COPY --from=build --chown=nonroot:nonroot /data /data
VOLUME /data
# Peers; JSON-RPC, WebSocket, GraphQL, the Engine API and metrics where flags open them.
EXPOSE 30303 30303/udp 8545 8546 8547 8551 9545
ENV NIWAKI_DATA_PATH=/data
ENTRYPOINT ["/usr/bin/niwaki"]
