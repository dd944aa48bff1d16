#!/usr/bin/env node
// Runs the broker of the package that npm has installed for this machine, with the same arguments, and ends as it ends.

'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const machine = `${process.platform}-${process.arch}`;

let binary;
try {
    binary = require.resolve(`@heraldmq/${machine}/bin/heraldmq`);
} catch {
    console.error(`heraldmq: the package @heraldmq/${machine} is not installed; there are linux-x64 and linux-arm64, for glibc`);
    process.exit(1);
}

const broker = spawn(binary, process.argv.slice(2), { stdio: 'inherit' });
// Without a handler this process would end at once, and the broker would go on without it.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGQUIT']) {
    process.on(signal, () => broker.kill(signal));
}
broker.on('error', (error) => {
    console.error(`heraldmq: ${binary}: ${error.message}`);
    process.exit(1);
});
broker.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
