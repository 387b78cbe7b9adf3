"use strict";
// Node's own `fetch` goes by the proxy variables from 22.21 and 24 on, with NODE_USE_ENV_PROXY.
// For older ones this is loaded by NODE_OPTIONS; it does nothing before `fetch` is first called.

const [major, minor] = process.versions.node.split(".").map(Number);
const original = globalThis.fetch;
if (original && (major < 22 || major === 23 || (major === 22 && minor < 21))) {
  let looked = false;
  globalThis.fetch = function fetch(...given) {
    if (!looked) {
      looked = true;
      route();
    }
    return original.apply(this, given);
  };
}

function route() {
  const proxy = process.env.https_proxy || process.env.HTTPS_PROXY;
  if (!proxy) return;
  void globalThis.Headers; // loads what makes the dispatcher
  const place = Symbol.for("undici.globalDispatcher.1");
  const present = globalThis[place];
  if (!present || present.constructor.name !== "Agent") return; // the program has set its own
  globalThis[place] = routed(present.constructor, new URL(proxy));
}

// In the clear a proxy is asked for the whole URL; TLS goes through a tunnel.
function routed(Agent, proxy) {
  const direct = new Set((process.env.no_proxy || process.env.NO_PROXY || "").split(","));
  class Routed extends Agent {
    dispatch(options, handler) {
      const origin = new URL(options.origin);
      if (origin.protocol !== "http:" || direct.has(bare(origin.hostname))) {
        return super.dispatch(options, handler);
      }
      const path = origin.origin + options.path;
      const headers = hosted(options.headers, origin.host);
      return super.dispatch({ ...options, origin: proxy.origin, path, headers }, handler);
    }
  }
  return new Routed({ connect: connector(proxy, direct) });
}

function hosted(headers, host) {
  if (!Array.isArray(headers)) return { ...headers, host };
  return [...headers, ...(Array.isArray(headers[0]) ? [["host", host]] : ["host", host])];
}

function bare(hostname) {
  return hostname.replace(/^\[|\]$/g, "");
}

function connector(proxy, direct) {
  return function connect({ hostname, protocol, port, servername }, done) {
    const tls = protocol === "https:";
    const host = bare(hostname);
    const target = `${hostname}:${port || (tls ? 443 : 80)}`;
    if (!tls || direct.has(host)) {
      open(require("node:net").connect({ host, port: Number(target.split(":").pop()) }));
      return;
    }
    const asked = require("node:http").request({
      host: proxy.hostname, port: proxy.port || 80,
      method: "CONNECT", path: target, headers: { host: target }, agent: false,
    });
    asked.once("error", done);
    asked.once("connect", (answer, socket, head) => {
      if (answer.statusCode === 200) {
        if (head.length) socket.unshift(head);
        open(socket);
        return;
      }
      socket.destroy();
      const why = answer.headers["x-drover-egress"] || answer.statusCode;
      done(new Error(`the egress proxy does not connect to ${target}: ${why}`));
    });
    asked.end();

    function open(socket) {
      socket.setNoDelay(true);
      const secured = tls && require("node:tls").connect({
        socket, servername: servername || (require("node:net").isIP(host) ? "" : host),
        ALPNProtocols: ["http/1.1"],
      });
      const made = secured || socket;
      const failed = (error) => done(error);
      made.once("error", failed);
      const event = secured ? "secureConnect" : socket.connecting ? "connect" : "";
      const ready = () => {
        made.removeListener("error", failed);
        done(null, made);
      };
      if (event) made.once(event, ready);
      else ready();
    }
  };
}
