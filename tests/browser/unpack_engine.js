// node unpack_engine.js PAGE NAME: writes the compiled library that a page contains, as NAME.js and NAME.wasm.
'use strict';
const fs = require('fs'), zlib = require('zlib');
const [, , page, name] = process.argv;
const text = fs.readFileSync(page, 'utf8');
const [, wasm, script] = text.match(/id="wasm">\s*([^<]*)<\/script>\s*<script>([^]*?)<\/script>/);
fs.writeFileSync(`${name}.wasm`, zlib.gunzipSync(Buffer.from(wasm, 'base64')));
fs.writeFileSync(`${name}.js`, script);
