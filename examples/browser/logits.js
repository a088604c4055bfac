// The page's functions in Node, to compare with the native program's:
//
//   node logits.js PAGE_JS logits FILE ID...              the logits after each of these tokens, a line each
//   node logits.js PAGE_JS parity STEPS SEED RECURRENT    the losses of so many steps of the parity model
'use strict';
const fs = require('fs');
const {openEngine} = require('./engine.js');
const [, , script, what, ...rest] = process.argv;

// Some versions of Node and Emscripten cannot read page.wasm by themselves.
const wasmBinary = fs.readFileSync(script.replace(/\.js$/, '.wasm'));
require(require('path').resolve(script))({wasmBinary}).then(module => {
  const engine = openEngine(module);
  if (what === 'parity') {
    engine.parity.begin(Number(rest[1]), rest[2] === '1');
    for (let i = 0; i < Number(rest[0]); ++i) console.log(engine.parity.step());
    return;
  }
  const model = engine.load(new Uint8Array(fs.readFileSync(rest[0])));
  for (const id of rest.slice(1)) {
    engine.read(model, 0, [Number(id)]);
    console.log(Array.from(engine.logits(model, 0)).join(' '));
  }
}).catch(error => {
  console.error(String(error && error.message ? error.message : error));
  process.exit(1);
});
