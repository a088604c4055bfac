// The small page: the parity model alone.
'use strict';

guarded(async () => {
  engine = await compiledEngine();
  openTraining();
  document.body.dataset.ready = 'yes';
})();
