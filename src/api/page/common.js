"use strict";
// What the chat and the panel share: elements, numbers, the key, requests, the notice line.
// Text from the server reaches the document as text nodes only; the page's Content-Security-Policy
// refuses everything else.

const $ = (id) => document.getElementById(id);

// make("p", {className: "x"}, "text", element, ...)
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 9.95) return ms.toFixed(1) + " ms";
  if (ms < 999.5) return Math.round(ms) + " ms";
  if (ms < 99500) return (ms / 1000).toFixed(ms < 9950 ? 2 : 1) + " s";
  return Math.round(ms / 60000) + " min";
}

function quantity(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 99.95) return Math.round(value).toLocaleString("en");
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

function byteCount(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return (bytes >= 100 || unit === 0 ? bytes.toFixed(0) : bytes.toFixed(1)) + " " + units[unit];
}

const percent = (share) => (share > 0.9995 || share === 0 ? (share * 100).toFixed(0) : (share * 100).toFixed(1)) + " %";

let noticeTimer = 0;
// kind: "", "good" or "bad". `seconds`: how long it stays; 0: until the next one.
function notice(text, kind = "", seconds = 0) {
  clearTimeout(noticeTimer);
  $("notice").hidden = !text;
  $("notice").dataset.kind = kind;
  if ($("notice").textContent !== text) $("notice").textContent = text;
  if (text && seconds) noticeTimer = setTimeout(() => notice(""), seconds * 1000);
}

// The key is kept for this tab alone.
const kKeyName = "tandem-key";
const keyStore = {
  get() {
    try { return sessionStorage.getItem(kKeyName) || this.memory; } catch { return this.memory; }
  },
  set(key) {
    this.memory = key;
    try {
      if (key) sessionStorage.setItem(kKeyName, key);
      else sessionStorage.removeItem(kKeyName);
    } catch { /* storage is off: the key lasts as long as the page */ }
    $("key-button").hidden = !key;
  },
  memory: "",
};

class KeyNeeded extends Error {}

// fetch() with the key. Paths are relative, so that a proxy may serve the page below a folder. Throws KeyNeeded for 401, TypeError if the server cannot be reached.
async function ask(path, options = {}) {
  const headers = {...options.headers};
  const key = keyStore.get();
  if (key) headers.Authorization = "Bearer " + key;
  const response = await fetch(path, {...options, headers, credentials: "same-origin", cache: "no-store"});
  if (response.status === 401) {
    response.body?.cancel();
    throw new KeyNeeded(key ? "unknown" : "missing");
  }
  return response;
}

// Asks for a key; true once there is one. Several callers share one dialog.
let keyAnswer = null;
function askForKey() {
  if (keyAnswer) return keyAnswer;
  const known = keyStore.get();
  $("key-title").textContent = known ? "The server does not know this key" : "This server needs a key";
  $("key").value = "";
  keyAnswer = new Promise((resolve) => {
    const dialog = $("key-dialog");
    const end = (given) => {
      keyAnswer = null;
      dialog.close();
      $("key-form").onsubmit = $("key-cancel").onclick = dialog.oncancel = null;
      resolve(given);
    };
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      const key = $("key").value.trim();
      if (!key) return;
      // A header holds nothing else; fetch() would fail with an error about itself.
      if (!/^[\x21-\x7e]+$/.test(key)) {
        $("key-title").textContent = "A key has no blanks and only ASCII characters";
        return;
      }
      keyStore.set(key);
      end(true);
    };
    $("key-cancel").onclick = () => end(false);
    dialog.oncancel = (event) => { event.preventDefault(); end(false); };
    dialog.showModal();
    $("key").focus();
  });
  return keyAnswer;
}
