// The functions of exports.cpp and parity_exports.cpp as methods of an object. The pages and the test in Node use it: `module` is what makeEddy()
// promises. A failed call throws the text of the error.
'use strict';

// A vocabulary of characters, from the JSON that Eddy's tokenizers write. What it lacks becomes a blank, or its first character.
function characterTokenizer(json) {
  const description = JSON.parse(json);
  if (description.name !== 'char')
    throw new Error(`the vocabulary is ${description.name} (the page reads those of characters)`);
  const characters = Array.from(description.characters + (description.added || ''));
  const ids = new Map(characters.map((character, id) => [character, id]));
  const unknown = ids.has(' ') ? ids.get(' ') : 0;
  return {
    encode: text => Array.from(text, character => (ids.has(character) ? ids.get(character) : unknown)),
    decode: id => characters[id],
    size: characters.length,
  };
}

// The texts under "__metadata__" of a safetensors file.
function metadataOf(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  return JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))).__metadata__;
}

function openEngine(module) {
  // Any value may be a result, NaN and 0 too: whether the call failed is asked for apart.
  const call = (name, result, types, values) => {
    const value = module.ccall(name, result, types, values);
    const problem = module.ccall('page_error', 'string', [], []);
    if (problem) throw new Error(problem);
    return value;
  };
  const number = (name, ...values) =>
    call(name, 'number', values.map(value => (typeof value === 'string' ? 'string' : 'number')), values);
  const floats = (address, count) => module.HEAPF32.slice(address >> 2, (address >> 2) + count);

  // What `use` returns of the address of these numbers.
  const withIds = (ids, use) => {
    const address = module._malloc(4 * ids.length);
    module.HEAP32.set(ids, address >> 2);
    try {
      return use(address);
    } finally {
      module._free(address);
    }
  };

  return {
    // Returns a model of a file's bytes: its number, its tokenizer, its configuration.
    load(bytes) {
      const metadata = metadataOf(bytes);
      module.FS.writeFile('/model', bytes);
      const id = number('page_load', '/model');
      module.FS.unlink('/model');
      return {
        id,
        tokenizer: characterTokenizer(metadata.tokenizer),
        config: JSON.parse(metadata.model),
        parameters: number('page_parameters', id),
      };
    },
    restart: (model, text) => number('page_restart', model.id, text),
    read: (model, text, ids) => withIds(ids, address => number('page_read', model.id, text, address, ids.length)),
    draw: (model, text, temperature, seed) => number('page_draw', model.id, text, temperature, seed),
    logits: (model, text) => floats(number('page_logits', model.id, text), model.tokenizer.size),
    // The tensors of a text's state: names, sizes and norms; their values where `wanted` is their name.
    views(model, text, wanted) {
      const count = number('page_views', model.id, text), views = [];
      for (let i = 0; i < count; ++i) {
        const name = call('page_view_name', 'string', ['number'], [i]);
        const rows = number('page_view_rows', i), columns = number('page_view_columns', i);
        views.push({
          name, rows, columns,
          norm: number('page_view_norm', i),
          frozen: number('page_view_frozen', i) === 1,
          values: name === wanted ? floats(number('page_view_values', i), rows * columns) : null,
        });
      }
      return views;
    },
    forget: (model, text, name) => number('page_forget', model.id, text, name),
    freeze: (model, text, name, on) => number('page_freeze', model.id, text, name, on ? 1 : 0),
    swap: model => number('page_swap', model.id),
    parity: {
      begin: (seed, recurrent) => number('parity_begin', seed, recurrent ? 1 : 0),
      step: () => number('parity_step'),
      accuracy: bits => number('parity_accuracy', bits),
      // The probability of odd behind each bit.
      answers: bits => withIds(bits, address => floats(number('parity_answers', address, bits.length), bits.length)),
      states: (streams, bits) => floats(number('parity_states', streams, bits), 3 * streams * bits),
    },
  };
}

if (typeof exports === 'object') Object.assign(exports, {openEngine, characterTokenizer, metadataOf});
