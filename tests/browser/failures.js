// node failures.js PAGE_JS MODEL: what fails in the page's functions is an error with words, and a result that is no number is
// none. MODEL is a model file of the page.
'use strict';
const assert = require('assert'), fs = require('fs'), path = require('path');
const {openEngine} = require('../../examples/browser/engine.js');
const [, , script, file] = process.argv;

const wasmBinary = fs.readFileSync(script.replace(/\.js$/, '.wasm'));
require(path.resolve(script))({wasmBinary}).then(module => {
  const engine = openEngine(module);
  for (const early of [() => engine.parity.step(), () => engine.parity.accuracy(16), () => engine.parity.states(4, 16),
    () => engine.parity.answers([1])])
    assert.throws(early, /no parity model has begun/);
  engine.parity.begin(1, true);
  assert.throws(() => engine.parity.accuracy(0), /0 bits/);
  assert.throws(() => engine.parity.states(0, 16), /0 streams/);
  assert.ok(engine.parity.step() > 0);
  assert.throws(() => engine.parity.answers([]), /0 bits/);
  assert.throws(() => engine.parity.answers([2]), /vocab|token/);
  assert.strictEqual(engine.parity.states(4, 16).length, 3 * 4 * 16);
  engine.parity.begin(1, false);
  assert.throws(() => engine.parity.states(4, 16), /without recurrence/);

  const bytes = new Uint8Array(fs.readFileSync(file));
  assert.throws(() => engine.logits({id: 0, tokenizer: {size: 2}}, 0), /model 0 of 0/);
  assert.throws(() => engine.load(bytes.subarray(0, bytes.length - 2)), /safetensors|bytes|file/);
  const model = engine.load(bytes);
  assert.throws(() => engine.read(model, 2, [1]), /text 2/);
  assert.throws(() => engine.read(model, 0, []), /no tokens/);
  assert.throws(() => engine.read(model, 0, [model.tokenizer.size]), /vocab|token/);
  assert.throws(() => engine.logits(model, 0), /no logits/);
  assert.throws(() => engine.draw(model, 0, 1, 1), Error);  // nothing was read
  engine.read(model, 0, [1]);
  assert.ok(engine.views(model, 0, '').every(view => view.norm >= 0));

  // A model whose weights are NaN, in bf16, has a state and logits that are NaN, and nothing fails.
  const header = 8 + Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const broken = engine.load(bytes.map((byte, i) => (i < header ? byte : 255)));
  engine.read(broken, 0, [1]);
  assert.ok(engine.views(broken, 0, '').some(view => Number.isNaN(view.norm)));
  assert.ok(engine.logits(broken, 0).every(Number.isNaN));
  console.log('failures: each has its words');
}).catch(error => {
  console.error(String(error && error.message ? error.message : error));
  process.exit(1);
});
