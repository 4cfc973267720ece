// Clients of the npm package bedrock-protocol on RakNet written in JavaScript:
//   ping PORT    prints what the server list would show, as JSON
//   join PORT    a player
'use strict'
const Module = require('node:module')

// The package loads its compiled RakNet before it reads which one it should use,
// and that one is built by an install script that doesn't run here.
const load = Module._load
Module._load = (name, ...rest) => name === 'raknet-native' ? {} : load(name, ...rest)
const bedrock = require('bedrock-protocol')

const [command, number] = process.argv.slice(2)
const address = { host: '127.0.0.1', port: Number(number), version: '1.21.60', raknetBackend: 'jsp-raknet' }
const say = (what) => console.log(JSON.stringify(what))

const commands = {
  ping () {
    // The package's own ping wants the compiled RakNet.
    const { Client } = require('jsp-raknet')
    new Client(address.host, address.port).ping((status) => { say({ status: String(status) }); process.exit(0) })
  },
  join () {
    const player = bedrock.createClient({ ...address, username: 'Hazel', offline: true, skipPing: true, connectTimeout: 20000, conLog: () => {} })
    player.on('error', (err) => console.error(err))
  }
}
commands[command]()
