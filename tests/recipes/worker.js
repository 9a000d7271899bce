// Runs a job as GitHub's runner does: the main script of an action, a step, the action's post script. The later ones
// find in their environment the variables that an earlier one wrote to the files of GITHUB_ENV and GITHUB_STATE.
'use strict';
const { spawnSync } = require('node:child_process');
const { readFileSync, writeFileSync } = require('node:fs');

const [main, step, post] = process.argv.slice(2);
const variables = {};
const state = {};

function pairs(file) {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2)));
}

function run(program, file) {
  const files = { GITHUB_ENV: 'job.env', GITHUB_OUTPUT: 'job.output', GITHUB_STATE: 'job.state' };
  for (const file of Object.values(files)) writeFileSync(file, '');
  const kept = Object.entries(state).map(([name, value]) => [`STATE_${name}`, value]);
  const env = { ...process.env, ...variables, ...Object.fromEntries(kept), ...files };
  const { status } = spawnSync(program, [file], { env, stdio: 'inherit' });
  Object.assign(variables, pairs(files.GITHUB_ENV));
  Object.assign(state, pairs(files.GITHUB_STATE));
  Object.assign(variables, pairs(files.GITHUB_OUTPUT));
  return status === 0;
}

const works = run('node', main) && run('bash', step);
process.exitCode = run('node', post) && works ? 0 : 1;
