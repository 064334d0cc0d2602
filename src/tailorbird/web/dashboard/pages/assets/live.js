// One websocket to the server: what is asked, what has changed, and how the index stands.

import { $, chosenQuery, data } from "./chosen.js";

export const FACETS = -1;
export const last = { token: "", positions: {}, away: "", now_ms: 0, lacks: 0, alarm: "", quiet: "" };
let sent = 0;
let socket = null;
let wait = 500;
let asked = 0;
let panels = [FACETS];
let hear = () => {};
let stand = () => {};
let fault = "";

export const number = () => sent;
export const sinceAsked = () => performance.now() - asked;

export function connect(wanted, on, onStatus) {
  [panels, hear, stand] = [wanted, on, onStatus];
  open();
}

function open() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live/${data.name}`);
  socket.addEventListener("open", () => {
    wait = 500;
    ask();
  });
  socket.addEventListener("message", (event) => take(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    take({ away: "This page's server does not answer." });
    setTimeout(open, wait);
    wait = Math.min(wait * 2, 10000);
  });
}

export function ask() {
  sent += 1;
  asked = performance.now();
  fault = "";
  if (socket?.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ state: sent, query: chosenQuery(), panels }));
}

function take(message) {
  if (!("panel" in message)) {
    Object.assign(last, message);
    banner();
    stand();
  } else if (message.state === sent) {
    if (message.panel === FACETS) {
      fault = message.error ? `${message.error}${message.hint ? `; expected ${message.hint}` : ""}` : "";
      banner();
    }
    hear(message);
  }
}

function banner() {
  const lacks = last.lacks > 0;
  const text = [
    last.away && `${last.away} What you see is as old as it says; trying again by itself.`,
    lacks && `Rows are missing here or out of date: ${last.lacks} changes wait as dead letters. Look: tailorbird dead-letters list ${data.file}`,
    last.alarm,
    fault,
  ].filter(Boolean);
  const name = last.away ? "Not live" : lacks ? "Incomplete" : last.alarm ? "Different" : "Live";
  $("status").textContent = name;
  $("status").classList.toggle("away", name !== "Live");
  $("banner").textContent = text.join(" ");
  $("banner").hidden = !text.length;
  const positions = Object.entries(last.positions ?? {}).map(([source, at]) => `${source}: ${at}`);
  $("foot").textContent = [positions.length ? `Shows ${positions.join(", ")}.` : "", last.quiet].filter(Boolean).join(" ");
}
