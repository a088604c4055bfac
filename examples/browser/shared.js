// What both pages need: elements, colours, errors, canvases, and the compiled library, which stands in the element "wasm" as
// gzip in base64.
'use strict';

const $ = id => document.getElementById(id);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const frame = () => new Promise(resolve => setTimeout(resolve, 0));
const kSlice = 24;  // milliseconds of work between two drawings

let engine = null;

function fail(error) {
  $('problem').hidden = false;
  $('problem').textContent = String(error && error.message ? error.message : error);
}

function guarded(action) {
  return async (...values) => {
    $('problem').hidden = true;
    try {
      await action(...values);
    } catch (error) {
      fail(error);
    }
  };
}

function bytesOf(base64) {
  const text = atob(base64.trim()), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// The engine of the page's own WebAssembly.
async function compiledEngine() {
  const unzipped = new Blob([bytesOf($('wasm').textContent)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return openEngine(await makeEddy({wasmBinary: new Uint8Array(await new Response(unzipped).arrayBuffer())}));
}

// Draws again where the window has another size or other colours.
function onNewLook(draw) {
  window.addEventListener('resize', guarded(draw));
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', guarded(draw));
}

// A canvas of the size that it has on the screen, cleared; drawn in CSS pixels.
function prepared(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.font = '12px system-ui, sans-serif';
  return {context, width, height};
}
