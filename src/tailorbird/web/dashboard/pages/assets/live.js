// One websocket to the server: it sends requests and receives changed panels and the state of the index.
// All requests of a page go through `get`.

import { $, chosenQuery, data } from "./chosen.js";
import { numbers } from "./format.js";

export const FACETS = -1;
export const TIMELINE = -2;
const count = numbers("");
export const last = { token: "", positions: {}, unavailable: "", now_ms: 0, lacks: 0, alarm: "", quiet: "" };
let sent = 0;
let socket = null;
let wait = 500;
let asked = 0;
let panels = [FACETS];
let hear = () => {};
let stand = () => {};
let begun = () => {};
let fault = "";

export const number = () => sent;
export const sinceAsked = () => performance.now() - asked;

// `onStatus` is called after each message about the index's state, `onOpen` after each new connection.
export function connect(wanted, on, onStatus, onOpen = () => {}) {
  [panels, hear, stand, begun] = [wanted, on, onStatus, onOpen];
  open();
}

// A session that has ended leads to the login.
export async function get(url) {
  const answer = await fetch(url);
  if (answer.status === 401) location.reload();
  return answer;
}

function open() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live/${data.name}`);
  socket.addEventListener("open", () => {
    wait = 500;
    begun();
    ask();
  });
  socket.addEventListener("message", (event) => take(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    take({ unavailable: "This page's server does not answer." });
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
    last.unavailable && `${last.unavailable} The data shown is older. Retrying automatically.`,
    lacks && `Rows are missing here or out of date: ${last.lacks === 1 ? "1 change was" : `${count(last.lacks)} changes were`} refused. Run: tailorbird dead-letters list ${data.file}`,
    last.alarm,
    fault,
  ].filter(Boolean);
  const name = last.unavailable ? "Not live" : lacks ? "Incomplete" : last.alarm ? "Different" : "Live";
  $("status").textContent = name;
  $("status").classList.toggle("bad", name !== "Live");
  $("banner").textContent = text.join(" ");
  $("banner").hidden = !text.length;
  const positions = Object.entries(last.positions ?? {}).map(([source, at]) => `${source}: ${at}`);
  $("foot").textContent = [positions.length ? `Shows ${positions.join(", ")}.` : "", last.quiet].filter(Boolean).join(" ");
}
