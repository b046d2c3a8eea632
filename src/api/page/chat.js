"use strict";
// The chat: turns, streaming, stopping, and what is said about each answer.

const turns = [];       // {user, answer}; answer is null where none came
let underWay = null;    // {abort} of the answer that streams
let models = [];

// Reads the list of models; keeps the choice if it is still there.
async function loadModels() {
  const response = await ask("v1/models");
  if (!response.ok) return;
  const names = (await response.json()).data.map((model) => model.id);
  if (names.join("\n") === models.join("\n")) return;
  const chosen = $("model").value;
  models = names;
  $("model").replaceChildren(...names.map((name) => make("option", {value: name}, name)));
  $("model").disabled = names.length === 0;
  if (names.includes(chosen)) $("model").value = chosen;
}

// A field of the options: undefined if empty, NaN if it is no positive number.
function numberOf(id, allowZero) {
  const given = $(id).value.trim();
  const thousands = /,\d{3}$/.test(given);  // or three decimals: ask rather than guess
  const value = given === "" ? undefined : thousands ? NaN : Number(given.replace(",", "."));
  const wrong = value !== undefined && !(allowZero ? value >= 0 : value > 0);
  $(id).classList.toggle("wrong", wrong);
  $(id).setAttribute("aria-invalid", wrong);
  return wrong ? NaN : value;
}

// The request's fields beside the messages; null if an option is wrong.
function chosenFields(tier) {
  const values = {ttft: numberOf("ttft"), tpot: numberOf("tpot"), max: numberOf("max-tokens"), heat: numberOf("temperature", true)};
  if (Object.values(values).some(Number.isNaN)) {
    showOptions(true);
    document.querySelector("input.wrong").focus();
    return null;
  }
  const fields = {model: models.length > 0 ? $("model").value : undefined, stream: true, stream_options: {include_usage: true}, tandem: {explain: true}, service_tier: tier};
  if (values.max !== undefined) fields.max_completion_tokens = Math.ceil(values.max);
  if (values.heat !== undefined) fields.temperature = values.heat;
  if (values.ttft !== undefined || values.tpot !== undefined) fields.slo = {ttft_ms: values.ttft, tpot_ms: values.tpot};
  return fields;
}

const chosenTier = () => document.querySelector("input[name=class]:checked").value;
const className = (tier) => (tier === "flex" || tier === "best_effort" ? "batch" : "chat");

// The payloads of the `data:` lines of a stream of server-sent events, which end with "[DONE]".
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

// Follows the newest line unless the reader has scrolled up.
function atEnd(change) {
  const log = $("log");
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

// The card of one answer while it comes. Text is drawn once a frame, however fast tokens come.
class AnswerCard {
  constructor() {
    this.text = make("div", {className: "text"});
    this.text.dataset.wait = "Waiting for the first token";
    this.thought = make("div", {className: "text thought", hidden: true});
    this.facts = make("p", {className: "facts"});
    this.card = make("article", {className: "answer wait streams"}, this.thought, this.text, this.facts);
    this.pending = {text: "", thought: ""};
    this.content = "";
    atEnd(() => $("log").append(this.card));
  }
  add(part, piece) {
    const shown = part === "text" && this.content.trim() === "" ? piece.trimStart() : piece;
    if (part === "text") this.content += piece;
    this.card.classList.remove("wait");
    this.pending[part] += shown;
    this.frame ??= requestAnimationFrame(() => this.draw());
  }
  draw() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = undefined;
    atEnd(() => {
      for (const part of ["text", "thought"]) {
        if (this.pending[part]) this[part].append(this.pending[part]);
        this.pending[part] = "";
      }
      this.thought.hidden = !this.thought.hasChildNodes();
    });
  }
  // Once all text is there: what stands between lines of ``` becomes a block of code.
  end() {
    this.draw();
    this.card.classList.remove("wait", "streams");
    this.text.normalize();
    if (!this.content.includes("```")) return;
    const nodes = this.content.trimStart().split(/^[ \t]*```[^\n`]*\n?/m).map((part, i) => (i % 2 ? make("pre", {}, part.replace(/\n$/, "")) : part));
    atEnd(() => this.text.replaceChildren(...nodes));
  }
  fact(label, value, kind = "", title = "") {
    this.facts.append(make("span", {className: kind, title}, label + " ", make("b", {}, value)));
  }
}

// What is said below an answer. `seen`: what this browser measured.
function describe(card, seen, usage, stopped) {
  const report = usage?.tandem;
  const choice = report?.choices?.[0] ?? {};
  const tokens = usage?.completion_tokens ?? seen.pieces;
  const gap = choice.mean_tbt_ms ?? (seen.pieces > 1 ? (seen.last - seen.first) / (seen.pieces - 1) : undefined);
  const ttft = choice.ttft_ms ?? seen.first;
  const kind = className(report?.class ?? seen.tier);
  if (stopped) card.fact("", "stopped");
  card.fact("first token", duration(ttft), "", "at this browser " + duration(seen.first));
  if (gap > 0) card.fact("", quantity(1000 / gap) + " tokens/s", "", "one each " + duration(gap));
  card.fact("", quantity(tokens) + (tokens === 1 ? " token" : " tokens"));
  card.fact("class", kind, kind + "-class", kind === "chat" ? "latency sensitive" : "best effort");
  if (choice.slo) {
    const targets = [choice.slo.ttft_ms !== undefined ? "first token within " + duration(choice.slo.ttft_ms) : "",
                     choice.slo.tpot_ms !== undefined ? "each further token within " + duration(choice.slo.tpot_ms) : ""];
    card.fact("targets", choice.slo.met ? "met" : "missed", choice.slo.met ? "met" : "missed", targets.filter(Boolean).join(", "));
  } else if (report) {
    card.fact("targets", "none");
  }
  if (choice.attention_tokens) {
    const {device, host} = choice.attention_tokens;
    card.fact("attention", host === 0 ? "on the device" : device === 0 ? "on the host" : percent(host / (host + device)) + " on the host", "",
              `tokens whose attention ran on the device: ${device}, on the host: ${host}`);
  }
  if (report?.honoured === false) {
    card.fact("", "not all of it read by the policy", "batch-class", "The request named a class, level or target that the server's policy does not read (honoured: false)");
  }
  if (report) card.card.append(moreOf(choice, seen));
}

function moreOf(choice, seen) {
  const list = make("dl");
  const row = (name, value) => list.append(make("dt", {}, name), make("dd", {}, value));
  if (choice.forecast_ttft_ms !== undefined) row("First token, by forecast", duration(choice.forecast_ttft_ms));
  row("First token, at the server", duration(choice.ttft_ms));
  if (choice.slo?.ttft_ms !== undefined) row("Target of the first token", duration(choice.slo.ttft_ms));
  if (choice.slo?.tpot_ms !== undefined) row("Target of each further token", duration(choice.slo.tpot_ms));
  row("First token, at this browser", duration(seen.first));
  row("Queued before it ran", duration(choice.queue_ms));
  row("Longest time between tokens", duration(choice.max_tbt_ms));
  if (choice.attention_tokens) row("Attention on device, host", `${choice.attention_tokens.device}, ${choice.attention_tokens.host} tokens`);
  row("Hops to the host", quantity(choice.hops));
  row("KV on the host for", duration(choice.parked_ms));
  row("Computed anew", quantity(choice.preemptions) + " times");
  return make("details", {className: "more"}, make("summary", {}, "Details"), list);
}

// Two bars: what was forecast beside what was asked for.
function forecastBars({ttft_ms: forecast, ttft_target_ms: target}) {
  const most = Math.max(forecast, target);
  const bar = (value, name) => {
    const element = make("i", {className: name});
    element.style.width = Math.max(1, (100 * value) / most) + "%";
    return make("span", {}, element);
  };
  return make("div", {className: "forecast"},
    make("span", {}, "Forecast"), bar(forecast, forecast > target ? "late" : ""), make("span", {}, duration(forecast)),
    make("span", {}, "Target"), bar(target, "target"), make("span", {}, duration(target)));
}

// A refusal (429 or what --overload-status says) or another failure, with what can be done now.
function showTrouble(title, message, turn, {forecast, canRetry = true, isRefusal = false, code = ""} = {}) {
  const buttons = make("div", {className: "row"});
  const card = make("article", {className: "answer trouble"}, make("h3", {}, title), make("p", {}, message));
  card.dataset.code = code;
  if (forecast?.ttft_ms !== undefined && forecast?.ttft_target_ms !== undefined) card.append(forecastBars(forecast));
  const again = (label, tier) => {
    const button = make("button", {type: "button"}, label);
    button.onclick = () => {
      if (underWay) return;
      card.remove();
      answerTurn(turn, tier);
    };
    buttons.append(button);
    return button;
  };
  if (canRetry) {
    const button = again("Try again", turn.tier);
    if (forecast?.retry_after_ms > 0) countDown(button, forecast.retry_after_ms);
  }
  if (isRefusal && turn.tier !== "flex") again("Send as batch", "flex");
  card.append(buttons);
  atEnd(() => $("log").append(card));
}

function countDown(button, ms) {
  const until = performance.now() + ms;
  const label = button.textContent;
  const show = () => {
    const left = until - performance.now();
    button.disabled = left > 0;
    button.textContent = left > 0 ? `${label} in ${duration(left)}` : label;
    if (left > 0) setTimeout(show, Math.min(left, 200));
  };
  show();
}

async function showRefusal(response, turn) {
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* not from Tandem */ }
  const message = error.message ?? `The server answered with status ${response.status}.`;
  const isRefusal = [429, 503, 529].includes(response.status);
  const never = response.headers.get("x-should-retry") === "false";
  const after = Number(response.headers.get("retry-after-ms"));
  const forecast = {...error.forecast};
  forecast.retry_after_ms ??= after;
  const title = !isRefusal ? "The server could not answer this" : never ? "Refused: these targets cannot be met" : "Refused before anything was computed";
  showTrouble(title, message[0].toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : "."), turn,
              {forecast, canRetry: isRefusal && !never, isRefusal, code: error.code ?? ""});
}

function streaming(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  $("log").setAttribute("aria-busy", on);
}

function requestOf(turn, fields) {
  const messages = [];
  for (const before of turns) {
    if (before === turn) break;
    if (before.answer !== null) messages.push({role: "user", content: before.user}, {role: "assistant", content: before.answer});
  }
  messages.push({role: "user", content: turn.user});
  return JSON.stringify({...fields, messages});
}

async function answerTurn(turn, tier) {
  const fields = chosenFields(tier);
  if (!fields) return;
  turn.tier = tier;
  const abort = new AbortController();
  underWay = {abort};
  streaming(true);
  const began = performance.now();
  try {
    let response;
    for (;;) {
      try {
        response = await ask("v1/chat/completions", {method: "POST", signal: abort.signal,
          headers: {"Content-Type": "application/json"}, body: requestOf(turn, fields)});
        break;
      } catch (error) {
        if (!(error instanceof KeyNeeded)) throw error;
        if (!(await askForKey())) {
          showTrouble("This server needs a key", "Nothing was sent.", turn);
          return;
        }
        resumePolling();
      }
    }
    if (response.ok) await readAnswer(response, turn, began);
    else await showRefusal(response, turn);
  } catch (error) {
    if (!turns.includes(turn)) return;  // "New chat" took it away meanwhile
    if (error.name !== "AbortError") showTrouble("The server cannot be reached", "It does not answer. This page goes on asking and says when it is back.", turn);
    else showTrouble("Stopped", "The request was stopped before its answer began.", turn);
  } finally {
    underWay = null;
    streaming(false);
  }
}

async function readAnswer(response, turn, began) {
  const card = new AnswerCard();
  const seen = {pieces: 0, first: undefined, last: undefined, tier: turn.tier};
  let usage = null;
  let failure = null;
  let stopped = false;
  let complete = false;
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") {
        complete = true;
        continue;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) {
        failure = chunk.error;
        break;
      }
      seen.tier = chunk.service_tier ?? seen.tier;
      usage = chunk.usage ?? usage;
      const delta = chunk.choices?.[0]?.delta;
      const thought = delta?.reasoning_content ?? delta?.reasoning;
      if (!delta?.content && !thought) continue;
      seen.last = performance.now() - began;
      seen.first ??= seen.last;
      ++seen.pieces;
      if (thought) card.add("thought", thought);
      if (delta.content) card.add("text", delta.content);
    }
  } catch (error) {
    stopped = error.name === "AbortError";
  }
  card.end();
  if (card.content || complete || stopped) turn.answer = card.content;
  if (!card.content && complete) card.text.textContent = "(The model ended its answer without a word.)";
  if (!complete && !stopped) {
    turn.answer = null;
    showTrouble(failure ? "The answer failed" : "The connection ended before the answer did",
                failure?.message ?? "The server was stopped or restarted, or the network failed.", turn, {code: failure?.code ?? ""});
  }
  if (seen.pieces > 0 || usage) atEnd(() => describe(card, seen, usage, stopped));
  else if (stopped) card.fact("", "stopped before the first token");
  else if (!complete) card.card.remove();
}

function showOptions(on) {
  $("options").hidden = !on;
  $("options-button").setAttribute("aria-expanded", on);
}

function send() {
  const text = $("prompt").value.trim();
  if (!text || underWay) return;
  const tier = chosenTier();
  if (!chosenFields(tier)) return;
  const turn = {user: text, answer: null, tier};
  turns.push(turn);
  $("empty").hidden = true;
  $("log").append(make("div", {className: "user text"}, text));
  $("log").scrollTop = $("log").scrollHeight;
  $("prompt").value = "";
  fitPrompt();
  answerTurn(turn, tier);
}

function fitPrompt() {
  const field = $("prompt");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + 2 + "px";
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("input", fitPrompt);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && underWay && !$("key-dialog").open) underWay.abort.abort();
});
$("stop").addEventListener("click", () => {
  underWay?.abort.abort();
  $("prompt").focus();
});
$("clear").addEventListener("click", () => {
  underWay?.abort.abort();
  turns.length = 0;
  $("log").replaceChildren($("empty"));
  $("empty").hidden = false;
  $("prompt").focus();
});
$("options-button").addEventListener("click", () => showOptions($("options").hidden));
