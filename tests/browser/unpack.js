// node unpack.js PAGE FOLDER: writes the model files that a page contains, NUMBER.safetensors, into a folder.
'use strict';
const fs = require('fs');
const [, , page, folder] = process.argv;
const models = Array.from(
    fs.readFileSync(page, 'utf8').matchAll(/<script type="text\/plain" class="model"[^>]*>([^<]*)<\/script>/g));
if (models.length !== 4) throw new Error(`${page} has ${models.length} models (4)`);
models.forEach(([, text], i) => fs.writeFileSync(`${folder}/${i}.safetensors`, Buffer.from(text, 'base64')));
