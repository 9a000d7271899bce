// Releases the lock that acquire.js acquired, if it did.
'use strict';
const { spawnSync } = require('node:child_process');

const { STATE_claim: claim, STATE_held: held, INPUT_PROGRAM, INPUT_ENDPOINT, INPUT_NAME } = process.env;
if (claim) {
  const words = ['release', claim];
  if (INPUT_ENDPOINT) words.push(`--endpoint=${INPUT_ENDPOINT.trim()}`);
  for (const name of INPUT_NAME.split('\n').map((line) => line.trim()).filter(Boolean)) {
    words.push(`--name=${name}`);
  }
  const env = { ...process.env, DLOCK_CLAIM: claim, DLOCK_HELD: held };
  const ended = spawnSync(INPUT_PROGRAM || 'dlock', words, { env, stdio: ['ignore', 'inherit', 'inherit'] });
  if (ended.status !== 0) {
    console.log('::error::The lock was not released by this job: it may have been lost before the job ended');
    process.exitCode = ended.status || 1;
  }
}
