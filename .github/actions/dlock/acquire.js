// Acquires the lock for the process that runs the job's steps, so that dlock renews it until release.js or the end of
// that process. If the lock is lost, dlock ends that process, and the job with it.
'use strict';
const { spawnSync } = require('node:child_process');
const { appendFileSync } = require('node:fs');

const input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] || '').trim();

// In a job's container the runner is not seen, and process 1 lives as long as the job.
const words = ['acquire', '--for-pid', String(process.ppid || 1), '--format', 'env'];
for (const name of input('name').split('\n').map((line) => line.trim()).filter(Boolean)) {
  words.push(`--name=${name}`);
}
const mode = input('mode') || 'exclusive';
words.push(/^[0-9]+$/.test(mode) ? `--slots=${mode}` : `--${mode}`);
for (const name of ['endpoint', 'wait', 'ttl', 'label']) {
  if (input(name)) words.push(`--${name}=${input(name)}`);
}
const program = input('program') || 'dlock';
const ended = spawnSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
if (ended.status === 0) {
  const value = (name) => (ended.stdout.match(new RegExp(`^${name}=(.*)$`, 'm')) || [])[1] || '';
  appendFileSync(process.env.GITHUB_ENV, ended.stdout);
  appendFileSync(process.env.GITHUB_OUTPUT, `claim=${value('DLOCK_CLAIM')}\ntoken=${value('DLOCK_TOKEN')}\n`);
  // A later step may acquire another lock, whose variables replace these.
  appendFileSync(process.env.GITHUB_STATE, `claim=${value('DLOCK_CLAIM')}\nheld=${value('DLOCK_HELD')}\n`);
} else {
  const why = ended.error ? `cannot run ${program}: ${ended.error.message}` : `dlock exited with ${ended.status}`;
  console.log(`::error::The lock was not acquired: ${why}`);
  process.exitCode = ended.status || 1;
}
