"use strict";
// The panel: asks /v1/tandem/status once a second while the page is seen, and shows what changed.
// Series are counted since the server's start, so rates are differences of two samples.

const kSamples = 120;
const samples = [];  // {at, m: metrics of the chosen model}, oldest first
let pollTimer = 0;
let polling = false;
let failures = 0;
let started = null;  // of the server's process, seconds since 1970

const kStates = {ready: "ready", loading: "loading the model", draining: "stopping", failed: "failed"};
const kLimits = {host_memory: "the host's memory", host_bandwidth: "the host's bandwidth", link: "the link", device: "the accelerator"};

// Series of a metric with labels; [] where there is none.
const series = (m, name) => (Array.isArray(m?.[name]) ? m[name] : []);
function valueOf(m, name, labels) {
  const found = series(m, name).find((one) => Object.entries(labels).every(([label, value]) => one[label] === value));
  return found ?? {value: 0, count: 0, sum: 0};
}
const total = (m, name, labels = {}) => series(m, name).filter((one) => Object.entries(labels).every(([k, v]) => one[k] === v)).reduce((sum, one) => sum + one.value, 0);

// The sample of `seconds` ago, or the oldest one.
function before(seconds) {
  const now = samples.at(-1).at;
  return samples.find((sample) => now - sample.at <= seconds * 1000 + 300) ?? samples[0];
}

// How a number grew: change(30, (m) => ...) over the last 30 s; per second with rate().
function change(seconds, read) {
  return (read(samples.at(-1).m) ?? 0) - (read(before(seconds).m) ?? 0);
}
function rate(seconds, read) {
  const span = (samples.at(-1).at - before(seconds).at) / 1000;
  return span > 0 ? change(seconds, read) / span : 0;
}
// Mean of a histogram over the last seconds; undefined if nothing was counted.
function mean(seconds, read) {
  const count = change(seconds, (m) => read(m)?.count ?? 0);
  return count > 0 ? change(seconds, (m) => read(m)?.sum ?? 0) / count : undefined;
}

function put(id, text, kind) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
  if (kind !== undefined) element.className = kind;
}

function rows(id, pairs) {
  const list = $(id);
  const wanted = pairs.filter(Boolean);
  if (list.children.length !== 2 * wanted.length) list.replaceChildren(...wanted.flatMap(() => [make("dt"), make("dd")]));
  wanted.forEach(([name, value, kind = "", key = ""], i) => {
    const [term, data] = [list.children[2 * i], list.children[2 * i + 1]];
    if (term.textContent !== name) term.textContent = name;
    if (data.textContent !== value) data.textContent = value;
    term.className = key;
    data.className = kind;
  });
}

// Draws lists of numbers on one scale, newest at the right.
function draw(id, ...lists) {
  const most = Math.max(1e-9, ...lists.flat().filter(Number.isFinite));
  const lines = $(id).querySelectorAll("polyline");
  const wide = Math.min(kSamples, Math.max(40, samples.length));
  const x = (i, length) => (120 * (wide - length + i)) / (wide - 1);
  const y = (value) => 31 - (29 * value) / most;
  lists.forEach((list, n) => {
    const points = list.map((value, i) => [x(i, list.length), y(value ?? 0), value]).filter(([, , value]) => value !== undefined);
    lines[n].setAttribute("points", points.map(([px, py]) => px.toFixed(1) + "," + py.toFixed(1)).join(" "));
    const area = $(id).querySelector(".area");
    if (n === 0 && area) {
      area.setAttribute("d", points.length < 2 ? "" : `M${points[0][0]} 32 ` + points.map(([px, py]) => `L${px.toFixed(1)} ${py.toFixed(1)}`).join(" ") + ` L${points.at(-1)[0]} 32Z`);
    }
  });
}

// Per pair of neighbouring samples.
const steps = (read) => samples.slice(1).map((sample, i) => read(sample.m, samples[i].m, (sample.at - samples[i].at) / 1000));

function showOutput(m) {
  put("rate", quantity(rate(3, (now) => now.generation_tokens_total)));
  draw("rate-line", steps((now, then, span) => Math.max(0, (now.generation_tokens_total - then.generation_tokens_total) / span)));
  const prompts = change(60, (now) => now.prompt_tokens_total);
  const cached = change(60, (now) => now.prompt_tokens_cached_total);
  put("rate-more", `${quantity(rate(3, (now) => now.prompt_tokens_total))} prompt tokens/s` + (prompts > 0 ? `, ${percent(cached / prompts)} cached` : ""));
}

function showClass(m, name, id) {
  const of = (metric, extra = {}) => (now) => valueOf(now, metric, {class: name, ...extra});
  const ended = (outcome) => change(60, (now) => of("slo_requests_total", {outcome})(now).value);
  const [met, missed] = [ended("met"), ended("missed")];
  const share = met / (met + missed);
  put("kept-" + id, met + missed > 0 ? percent(share) : "no targets", met + missed > 0 ? (share >= 0.99 ? "met" : "missed") : "none");
  const first = mean(60, of("time_to_first_token_seconds"));
  const gap = mean(60, of("inter_token_latency_seconds"));
  put("first-" + id, first === undefined ? "–" : duration(first * 1000));
  put("gap-" + id, gap === undefined ? "–" : duration(gap * 1000));
  put("speed-" + id, quantity(rate(3, (now) => of("time_to_first_token_seconds")(now).count + of("inter_token_latency_seconds")(now).count)));
  put("waiting-" + id, quantity(valueOf(m, "requests_waiting_by_class", {class: name}).value));
}

function showClasses(m) {
  showClass(m, "latency_sensitive", "chat");
  showClass(m, "best_effort", "batch");
  const met = total(m, "slo_requests_total", {outcome: "met"});
  const all = met + total(m, "slo_requests_total", {outcome: "missed"});
  put("kept-all", all > 0 ? `Since the start ${quantity(met)} of ${quantity(all)} met their targets.` : "");
}

function showQueue(m, policy) {
  put("running", quantity(m.requests_running));
  put("waiting", quantity(m.requests_waiting));
  draw("queue-line", samples.map((one) => one.m.requests_running), samples.map((one) => one.m.requests_waiting));
  const admits = Array.isArray(m.admission_decisions_total);
  const grown = (answer) => change(60, (now) => total(now, "admission_decisions_total", {answer}));
  const reasons = series(m, "admission_rejections_total")
    .map((one) => [one.reason, change(60, (now) => valueOf(now, "admission_rejections_total", {reason: one.reason}).value)])
    .filter(([, count]) => count > 0);
  const refused = reasons.reduce((sum, [, count]) => sum + count, 0);
  rows("admission", [
    admits && ["Forecast of the last arrival", m.last_ttft_forecast_seconds > 0 ? duration(1000 * m.last_ttft_forecast_seconds) : "–"],
    admits && ["Accepted, last minute", quantity(grown("accepted"))],
    ["Refused, last minute", quantity(refused), refused > 0 ? "bad" : ""],
    ...reasons.map(([reason, count]) => [reason, quantity(count), "", "sub"]),
  ]);
  $("admission-none").hidden = admits;
  put("admission-none", `The policy ${policy} queues all requests; omniserve refuses by forecast.`);
}

// Steps that are predicted are compared with their predictions; steps that only wait for the host are not predicted.
function showSteps(m) {
  const predicted = (now) => total(now, "step_time_predicted_seconds_total");
  const measured = (now) => total(now, "step_time_measured_seconds_total");
  const errors = (now) => series(now, "step_time_error_ratio").reduce((sum, one) => ({count: sum.count + one.count, sum: sum.sum + one.sum}), {count: 0, sum: 0});
  const predicts = errors(m).count > 0;
  const all = mean(10, (now) => now.step_seconds);
  const compared = change(10, (now) => errors(now).count);
  const real = predicts ? (compared > 0 ? change(10, measured) / compared : undefined) : all;
  const forecast = compared > 0 ? change(10, predicted) / compared : undefined;
  put("step-real", duration(1000 * real));
  const each = (sum, count) => steps((now, then) => (count(now) > count(then) ? (sum(now) - sum(then)) / (count(now) - count(then)) : undefined));
  const allLine = () => each((now) => now.step_seconds.sum, (now) => now.step_seconds.count);
  const pairLine = (sum) => each(sum, (now) => errors(now).count);
  draw("step-line", predicts ? pairLine(predicted) : [], predicts ? pairLine(measured) : allLine());
  const error = mean(10, errors);
  rows("steps", [
    ["Real", duration(1000 * real), "", "key1"],
    ["Predicted", predicts ? duration(1000 * forecast) : "no prediction", predicts ? "" : "muted", "key2"],
    predicts && ["Mean error of a prediction", error === undefined ? "–" : percent(error)],
    predicts && ["All steps, with waits for the host", duration(1000 * all)],
    ["Steps/s", quantity(rate(3, (now) => now.steps_total))],
    ["Tokens in a step", quantity(mean(3, (now) => now.step_tokens))],
  ]);
}

function bar(id, used, all) {
  const share = all > 0 ? used / all : 0;
  $(id + "-bar").style.width = (100 * share).toFixed(1) + "%";
  $(id + "-bar").classList.toggle("full", share > 0.95);
  put(id + "-text", `${quantity(used)} of ${quantity(all)} blocks`);
}

function showMemory(m, process) {
  bar("kv", m.kv_blocks_in_use, m.kv_blocks);
  put("kv-name", m.host_kv_blocks > 0 ? "Device KV" : "KV cache");
  $("host-row").hidden = !(m.host_kv_blocks > 0);
  if (m.host_kv_blocks > 0) bar("host", m.host_kv_blocks_in_use, m.host_kv_blocks);
  put("resident", process.resident_bytes ? byteCount(process.resident_bytes) + " resident" : "");
  const dropped = change(60, (now) => now.preemptions_total);
  rows("memory", [["Dropped for lack of blocks, last minute", quantity(dropped), dropped > 0 ? "bad" : ""]]);
}

function showTiers(m) {
  const has = m.host_kv_blocks > 0;
  $("tiers-none").hidden = has;
  const regime = series(m, "regime").find((one) => one.value === 1)?.regime;
  put("regime", has && regime ? "limited by " + kLimits[regime] : "");
  if (!has) {
    rows("tiers", []);
    return;
  }
  rows("tiers", [
    ["Offloaded sequences", quantity(m.offloaded_sequences)],
    ["Visits/s", quantity(rate(3, (now) => now.visits_total))],
    ["Hops/s, in flight", `${quantity(rate(3, (now) => now.hops_total))}, ${quantity(m.hops_in_flight)}`],
    ["Rows to the host, back", `${byteCount(rate(3, (now) => valueOf(now, "hop_bytes_total", {direction: "to_host"}).value))}/s, ${byteCount(rate(3, (now) => valueOf(now, "hop_bytes_total", {direction: "from_host"}).value))}/s`],
    ["KV to the host, back", `${byteCount(rate(3, (now) => valueOf(now, "tier_transfer_bytes_total", {direction: "to_host"}).value))}/s, ${byteCount(rate(3, (now) => valueOf(now, "tier_transfer_bytes_total", {direction: "from_host"}).value))}/s`],
    ["Host attention reads", byteCount(rate(3, (now) => now.host_attention_bytes_total)) + "/s"],
    m.host_suspended === 1 && ["Host", "suspended after failures", "bad"],
    m.host_workers_lost > 0 && ["Workers that hang", quantity(m.host_workers_lost), "bad"],
  ]);
}

function show(status) {
  const model = status.models[0];
  const build = `Tandem ${status.version}${status.commit ? " (" + status.commit + ")" : ""}`;
  put("build", `${build}, ${quantity(status.connections)} connections, up ${uptime(status.process)}`);
  put("state-text", kStates[status.state] ?? status.state);
  $("state").dataset.state = status.state === "ready" ? "ready" : status.state === "failed" ? "lost" : "wait";
  if (!model) return;
  put("policy", "policy " + model.policy);
  const m = model.metrics;
  samples.push({at: performance.now(), m});
  if (samples.length > kSamples) samples.shift();
  showOutput(m);
  showClasses(m);
  showQueue(m, model.policy);
  showSteps(m);
  showMemory(m, status.process);
  showTiers(m);
}

function uptime(process) {
  if (!process.started_unix_seconds) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - process.started_unix_seconds);
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  return days > 0 ? `${days} d ${hours} h` : hours > 0 ? `${hours} h ${minutes} min` : minutes > 0 ? `${minutes} min` : `${Math.round(seconds)} s`;
}

// Says what became of the server since the last answer.
function noticeChanges(status) {
  const now = status.process.started_unix_seconds ?? 0;
  const restarted = started !== null && Math.abs(now - started) > 1.5;
  if (restarted) {
    samples.length = 0;
    notice("The server was restarted. What this page counts begins anew; the conversation is still here.", "good", 12);
  } else if (failures > 0) {
    notice("The server answers again.", "good", 5);
  }
  if (started === null || restarted || failures > 0 || models.length === 0) loadModels().catch(() => {});
  started = now;
  failures = 0;
  $("panel").classList.remove("stale");
}

function noticeFailure() {
  ++failures;
  $("panel").classList.add("stale");
  $("state").dataset.state = "lost";
  put("state-text", "no answer");
  if (failures >= 2) notice("The server does not answer: it was stopped, is being restarted, or the network failed. Trying again.", "bad");
}

async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  let wait = 1000;
  try {
    const response = await ask("v1/tandem/status", {signal: AbortSignal.timeout(10000)});
    if (!response.ok) throw new Error("status " + response.status);
    const status = await response.json();
    noticeChanges(status);
    show(status);
  } catch (error) {
    if (error instanceof KeyNeeded) {
      $("state").dataset.state = "wait";
      put("state-text", "needs a key");
      polling = false;
      if (!(await askForKey())) {
        notice("This server needs a key. Send a message, or reload the page, to enter one.", "bad");
        return;
      }
      notice("");
      wait = 0;
    } else {
      noticeFailure();
      wait = Math.min(5000, 1000 * failures);
    }
  }
  polling = false;
  clearTimeout(pollTimer);
  pollTimer = setTimeout(poll, wait);
}

function resumePolling() {
  notice("");
  clearTimeout(pollTimer);
  poll();
}

// Nothing is asked while nobody looks; the gap in time is in the samples, so rates stay right.
document.addEventListener("visibilitychange", () => {
  clearTimeout(pollTimer);
  if (!document.hidden) poll();
});
for (const view of ["chat", "server"]) {
  $("view-" + view).addEventListener("click", () => {
    document.body.dataset.view = view;
    $("view-chat").setAttribute("aria-pressed", view === "chat");
    $("view-server").setAttribute("aria-pressed", view === "server");
  });
}
$("key-button").addEventListener("click", () => {
  keyStore.set("");
  resumePolling();
});
$("key-button").hidden = !keyStore.get();
$("prompt").focus();
poll();
